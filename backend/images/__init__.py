"""Models that tell the class of a page from its picture: their files, their preprocessing, and torch running them."""
