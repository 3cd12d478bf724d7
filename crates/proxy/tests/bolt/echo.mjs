// An HTTP server: the body comes back, under the status that the last segment of the path asks for.
import http from "node:http";

const server = http.createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
        const last = request.url.split("/").pop();
        if (last === "never") return;
        if (last === "cut") return response.destroy();
        const head = { "x-asked": `${request.method} ${request.url} ${request.headers["bolt-class"]}` };
        response.writeHead(Number(last) || 200, head);
        for (const chunk of chunks) response.write(chunk);
        response.end();
    });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
