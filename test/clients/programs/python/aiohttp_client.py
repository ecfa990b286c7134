# aiohttp: argv is column, base URL, file to upload. It regards the proxy's variables only when asked to (trust_env).
import asyncio, os, sys
import aiohttp

column, base, path = sys.argv[1:4]
key = os.environ["API_KEY"]


async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        if column == "header":
            async with session.get(base + "/echo", headers={"Authorization": "Bearer " + key}) as response:
                print(await response.text())
        elif column == "body":
            async with session.post(base + "/echo", json={"key": key}) as response:
                print(await response.text())
        elif column == "upload":
            with open(path, "rb") as file:
                async with session.put(base + "/upload", data=file) as response:
                    print(await response.text())
        elif column == "stream":
            async with session.get(base + "/events") as response:
                async for line in response.content:
                    print(line.decode().rstrip(), flush=True)
        elif column == "websocket":
            async with session.ws_connect(base + "/ws") as socket:
                await socket.send_str("key=" + key)
                print(await socket.receive_str())


asyncio.run(main())
