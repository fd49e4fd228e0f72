"""Reads what others wrote: text and arrays, within a budget that follows from the size of the file."""
