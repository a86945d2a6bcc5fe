"""One moto server on a free port: every request is applied as a whole before the next one begins.

moto's own server runs requests side by side, and its transactions are not atomic then. The port is the first line that
this prints. It ends when its standard input does, so it does not outlive whoever started it.
"""

import io
import logging
import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

one_at_a_time = threading.Lock()
moto = DomainDispatcherApplication(create_backend_app)


def app(environ, start_response):
    # The body is read first: a request that stands still half sent must not keep the others out.
    length = int(environ.get("CONTENT_LENGTH") or 0)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with one_at_a_time:
        return [b"".join(moto(environ, start_response))]


def end_with_standard_input():
    sys.stdin.buffer.read()
    os._exit(0)


logging.getLogger("werkzeug").setLevel(logging.ERROR)
threading.Thread(target=end_with_standard_input, daemon=True).start()
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
