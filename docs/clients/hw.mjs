// node hw.mjs METHOD [PARAMS]: one call to the daemon, its reply on stdout; a failed exit without one.
import net from "node:net";
const [method, params = "{}"] = process.argv.slice(2);
const socket = net.connect(`${process.env.HWTOOL_SOCKET ?? "/run/hwtool"}/agent.sock`);
let text = "";
socket.setEncoding("utf8");
socket.on("data", (part) => (text += part));
socket.on("end", () => console.log(JSON.stringify(JSON.parse(text))));
socket.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: JSON.parse(params) }) + "\n");
