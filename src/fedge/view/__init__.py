"""The results page of `fedge view`: every run below a folder, live. Needs the extra `page`; torch is not imported."""
