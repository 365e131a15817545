"""The routes, one module for each group. A route reads its request, calls one service and writes the answer."""
