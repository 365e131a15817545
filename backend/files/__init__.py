"""Parsing of uploaded files: their type, the text layers and images of their pages. Untrusted bytes only in workers.

The entry point is `file_readers.FileReaders`. Other modules are records, pure decisions, and what runs inside the
worker processes (`worker` and the modules that only it imports).
"""
