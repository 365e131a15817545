"""The routes, one file a family. A route reads a schema, calls one service and writes its answer."""
