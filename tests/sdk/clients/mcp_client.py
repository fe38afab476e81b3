"""The Python package `mcp` uses `talaria mcp` as codex does. The program and its arguments are ours."""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        listed = await session.list_tools()
        print("tools", *[tool.name for tool in listed.tools])
        for name, arguments in [
            ("skills_list", {}),
            ("skill_view", {"name": "tea"}),
            ("skill_view", {"name": "coffee"}),
            ("terminal", {"command": "id"}),
        ]:
            result = await session.call_tool(name, arguments)
            failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
            print(name, "failed" if failed else "ok", result.content[0].text.split("\n")[0])


asyncio.run(main())
