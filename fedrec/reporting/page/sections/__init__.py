"""The chapters of the page, each from the files of what it shows."""
