"""Files in, pages out: what a file is, its pages' own text, their images. Foreign bytes are parsed in workers only.

`readers.FileReaders` is the front door; the rest are records, pure decisions, and what runs inside the workers
(`worker` and the modules that only it imports).
"""
