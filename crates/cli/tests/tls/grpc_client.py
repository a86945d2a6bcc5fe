# Calls Status with grpcio, a client certificate and a bearer token in a file. Prints OK or the status code.
import sys

import grpc

address, ca, cert, key, bearer = (sys.argv[1:] + [""])[:5]


def read(path):
    with open(path, "rb") as file:
        return file.read()


client = (read(key), read(cert)) if cert else (None, None)
credentials = grpc.ssl_channel_credentials(read(ca), *client)
with grpc.secure_channel(address, credentials) as channel:
    status = channel.unary_unary("/leasehold.v1.Leasehold/Status")
    try:
        metadata = [("authorization", "Bearer " + read(bearer).decode().strip())] if bearer else []
        print("OK" if status(b"", timeout=30, metadata=metadata) else "EMPTY")
    except grpc.RpcError as error:
        print(error.code().name)
