// The npm package `@modelcontextprotocol/sdk` uses `talaria mcp` as an editor does. The package's folder, the program and
// its arguments are given.
import { pathToFileURL } from "node:url";

const [sdk, command, ...args] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${sdk}/dist/esm/client/${file}`).href);
const { Client } = await load("index.js");
const { StdioClientTransport } = await load("stdio.js");

const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: { ...process.env } }));
const { tools } = await client.listTools();
console.log("tools", ...tools.map((tool) => tool.name));
for (const [name, args] of [
  ["skills_list", {}],
  ["skill_view", { name: "tea" }],
  ["skill_view", { name: "coffee" }],
  ["terminal", { command: "id" }],
]) {
  const result = await client.callTool({ name, arguments: args });
  console.log(name, result.isError ? "failed" : "ok", result.content[0].text.split("\n")[0]);
}
await client.close();
