"""One file a resource: its requests, its answers and its routes.

A route reads its request, calls one service and writes the answer. An answer is a ``TypedDict`` beside the function
that writes it: OpenAPI shows the TypedDict and mypy checks the writer against it, so the two cannot drift apart;
nothing is validated while serving. Vectors are the exception: they are written as bytes straight from arrays, and a
test compares the two. Unknown members of requests are ignored, as OpenAI does.
"""
