"""Reports: what a score hides. Classes, calibration, where a model errs, and its most confident mistakes."""

from lazygnn.reports.page import Entry, make_page
from lazygnn.reports.report import make_report

__all__ = ["Entry", "make_page", "make_report"]
