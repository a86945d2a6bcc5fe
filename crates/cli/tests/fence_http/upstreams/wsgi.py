"""A WSGI service that reports how it reads each request.

It decodes the path once, removes `;` parameters and resolves `..`, as many applications do. Headers are variables, so that `-` and
`_` are the same. It honors a method override, and a header SCRIPT_NAME as gunicorn does.
"""

import posixpath
import re
import urllib.parse
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Handler(WSGIRequestHandler):
    def get_environ(self):
        return {**super().get_environ(), "RAW_TARGET": self.requestline.split(" ")[1]}

    def log_message(self, *_):
        pass


def service(environ, start_response):
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
    path = path.removeprefix(environ.get("HTTP_SCRIPT_NAME", ""))
    path = posixpath.normpath("/" + re.sub(";[^/]*", "", path)).replace("//", "/")
    method = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE", environ["REQUEST_METHOD"])
    headers = [("x-method", method.upper()), ("x-path", urllib.parse.quote(path)), ("x-target", environ["RAW_TARGET"])]
    start_response("200 OK", headers)
    return []


server = make_server("127.0.0.1", 0, service, handler_class=Handler)
print(f"upstream on 127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
