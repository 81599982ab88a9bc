"""`pumice web` as a user starts it: it prints one address, serves the page there, and ends."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import aiohttp.web
import yaml

from pumice.local.ports import free_port

API = "/apis/visibility.pumice.dev/v1alpha1"


def kubeconfig(folder, port, *, namespace="team-a"):
    path = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u", "namespace": namespace}
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


@asynccontextmanager
async def command(*words):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pumice", "web", "--no-browser", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # a shell that runs the tests in the background has its children ignore interrupts
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        async with asyncio.timeout(50):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_the_page_is_served_at_the_printed_address_with_the_kubeconfigs_user(tmp_path):
    api_server, port = free_port(), free_port()
    seen = []

    async def answer(request):
        seen.append((request.raw_path, request.headers.get("Authorization")))
        return aiohttp.web.json_response({"kind": "QueueTreeList", "items": []})

    runner = aiohttp.web.ServerRunner(aiohttp.web.Server(answer))
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", api_server).start()
    files = ("--kubeconfig", str(kubeconfig(tmp_path, api_server)), "--port", str(port))
    link = "http://127.0.0.1:8642/#/jobs/team-a/train"
    async with command(link, *files) as process:
        address = (await process.stdout.readline()).decode().strip()
        assert address.startswith(f"http://127.0.0.1:{port}/?key=")
        assert address.endswith("#/jobs/team-a/train")
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            async with session.get(address) as page:
                assert "<title>Pumice</title>" in await page.text()
            async with session.get(f"http://127.0.0.1:{port}/web/context") as context:
                assert (await context.json())["namespace"] == "team-a"
            async with session.get(f"http://127.0.0.1:{port}{API}/queuetrees") as queues:
                assert (await queues.json())["items"] == []
        assert seen == [("/version", "Bearer t"), (f"{API}/queuetrees", "Bearer t")]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    await runner.cleanup()


async def test_a_page_of_a_cluster_that_is_down_is_not_served(tmp_path):
    file = kubeconfig(tmp_path, free_port())
    async with command("--kubeconfig", str(file), "--port", str(free_port())) as process:
        out, error = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert b"is the cluster up" in error


async def test_a_kubeconfig_that_is_not_there_is_one_line(tmp_path):
    async with command("--kubeconfig", str(tmp_path / "none")) as process:
        _, errors = await process.communicate()
        assert process.returncode == 2
        assert errors.decode().startswith("error: kubeconfig")
        assert errors.count(b"\n") == 1
