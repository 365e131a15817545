"""Office files, mail and archives to pages: a reader a format, all of which set what they find with `PageSetter`."""
