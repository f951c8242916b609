"""The results page of `fedge view`: every run below a folder, live. Requires the extra `page`; imports no torch."""
