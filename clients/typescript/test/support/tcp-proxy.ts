// A TCP proxy that delays, holds, cuts or changes what passes between a client and its server.

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

export class TcpProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Milliseconds by which replies are delayed. */
  replyDelayMs = 0;
  /** Which requests are delayed, cut, shortened or changed: those whose request line matches. */
  onlyFor = /./;
  /** Cut the connection instead of passing this many next replies. */
  cutReplies = 0;
  /** Pass half of the body of this many next replies, and end the connection as if that were all. */
  shortenReplies = 0;
  /** Changes replies; the result must have the same length. */
  change: ((text: string) => string) | undefined;
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
      let requestLine = "";
      client.on("data", (data) => {
        requestLine = /^[A-Z]+ \S+ HTTP/.exec(data.toString("latin1"))?.[0] ?? requestLine;
        if (!proxy.isHeld) upstream.write(data);
      });
      upstream.on("data", (received: Buffer) => {
        if (proxy.isHeld) return;
        let data = received;
        const isSelected = proxy.onlyFor.test(requestLine);
        if (isSelected && proxy.cutReplies > 0) {
          proxy.cutReplies -= 1;
          client.destroy();
          return void upstream.destroy();
        }
        if (isSelected && proxy.shortenReplies > 0) {
          proxy.shortenReplies -= 1;
          const text = data.toString("latin1").replace(/content-length: \d+/i, "connection: close");
          const body = text.indexOf("\r\n\r\n") + 4;
          client.end(text.slice(0, body + (text.length - body) / 2), "latin1");
          return void upstream.destroy();
        }
        if (isSelected && proxy.change) data = Buffer.from(proxy.change(data.toString("latin1")), "latin1");
        if (proxy.replyDelayMs === 0 || !isSelected) client.write(data);
        else setTimeout(() => !client.destroyed && client.write(data), proxy.replyDelayMs).unref();
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

  /** Cuts all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Cuts all connections and refuses new ones. */
  down(): void {
    this.isDown = true;
    this.cut();
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
