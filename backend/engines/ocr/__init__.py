"""Reading words out of images: engines of the lanes, one record in and one out."""
