// A Node service that reports how it reads each request: it resolves the path as browsers do, decodes it, ignores case and a
// trailing slash as Express does, and honors headers that override method and path.
const http = require("node:http");

const server = http.createServer((request, response) => {
  const target = request.headers["x-original-url"] ?? request.url;
  let path = new URL(target, "http://service").pathname;
  try {
    path = decodeURIComponent(path);
  } catch {
    // Malformed: as it was sent.
  }
  path = path.toLowerCase().replace(/(?<=.)\/$/, "");
  response.setHeader("x-method", (request.headers["x-http-method-override"] ?? request.method).toUpperCase());
  response.setHeader("x-path", encodeURI(path));
  response.setHeader("x-target", request.url);
  request.resume().on("end", () => response.end());
});
server.listen(0, "127.0.0.1", () => console.log(`upstream on 127.0.0.1:${server.address().port}`));
