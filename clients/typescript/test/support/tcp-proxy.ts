// A TCP proxy that delays, holds or cuts what passes between a client and its server.

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class TcpProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Milliseconds by which replies are delayed. */
  replyDelayMs = 0;
  /** Cut the connection instead of passing this many next replies. */
  cutReplies = 0;
  /** Pass nothing in either direction. */
  isHeld = false;
  /** Refuse new connections. */
  isDown = false;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(target: string): Promise<TcpProxy> {
    const [host = "", port = ""] = target.split(":");
    const server = createServer();
    const proxy = new TcpProxy(server);
    server.on("connection", (client) => {
      if (proxy.isDown) return void client.destroy();
      const upstream = connect(Number(port), host);
      for (const socket of [client, upstream]) {
        proxy.#sockets.add(socket);
        socket.on("close", () => proxy.#sockets.delete(socket));
        socket.on("error", () => undefined);
      }
      client.on("data", (data) => !proxy.isHeld && upstream.write(data));
      upstream.on("data", (data) => {
        if (proxy.isHeld) return;
        if (proxy.cutReplies > 0) {
          proxy.cutReplies -= 1;
          client.destroy();
          return void upstream.destroy();
        }
        if (proxy.replyDelayMs === 0) client.write(data);
        else setTimeout(() => !client.destroyed && client.write(data), proxy.replyDelayMs);
      });
      client.on("close", () => upstream.destroy());
      upstream.on("close", () => client.destroy());
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return proxy;
  }

  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Cuts all connections and refuses new ones. */
  down(): void {
    this.isDown = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  up(): void {
    this.isDown = false;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}
