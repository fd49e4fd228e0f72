"""The version of the library, which the build reads, too."""

VERSION = "0.1.0"
