"""The stand-in engine answers as vLLM does, and misbehaves on demand."""

import asyncio

import httpx
import pytest

from tests.clock import FakeClock
from tests.standins.engine import ALL, Engine
from tests.standins_tests.running import running, until

pytestmark = pytest.mark.anyio


async def test_models_are_the_base_and_its_adapters_with_their_parent(
    client: httpx.AsyncClient,
) -> None:
    async with running(Engine("e", model="llama", adapters=["x", "y"])) as engine:
        cards = (await client.get(f"{engine.url}/v1/models")).json()["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [
        ("llama", None),
        ("x", "llama"),
        ("y", "llama"),
    ]


async def test_adapters_are_loaded_unloaded_and_lost_with_the_process(
    client: httpx.AsyncClient,
) -> None:
    async with running(Engine("e")) as engine:

        async def post(path: str, name: str) -> int:
            answer = await client.post(f"{engine.url}{path}", json={"lora_name": name})
            return answer.status_code

        assert await post("/v1/load_lora_adapter", "x") == 200
        assert await post("/v1/load_lora_adapter", "x") == 400
        assert await post("/v1/load_lora_adapter", "") == 400
        assert await post("/v1/unload_lora_adapter", "z") == 404
        assert await post("/v1/load_lora_adapter", "y") == 200
        assert await post("/v1/unload_lora_adapter", "x") == 200
        assert list(engine.adapters) == ["y"]
        engine.restart_process()
        assert list(engine.adapters) == []


async def test_completions_tell_the_engine_and_refuse_models_that_it_lacks(
    client: httpx.AsyncClient,
) -> None:
    async with running(Engine("e", model="llama", adapters=["x"])) as engine:

        async def complete(model: str) -> httpx.Response:
            return await client.post(f"{engine.url}/v1/completions", json={"model": model})

        answers = [await complete(model) for model in ("llama", "x", "y")]
    assert [answer.status_code for answer in answers] == [200, 200, 404]
    assert answers[0].json()["choices"][0]["text"] == "e"
    assert engine.completions == {"llama": 1, "x": 1}
    assert engine.requests["/v1/completions"] == 3


@pytest.mark.parametrize("path", ["/v1/models", ALL])
async def test_a_path_fails_or_hangs_when_told(client: httpx.AsyncClient, path: str) -> None:
    async with running(Engine("e")) as engine:
        engine.fail.add(path)
        assert (await client.get(f"{engine.url}/v1/models")).status_code == 500
        engine.fail.clear()
        assert (await client.get(f"{engine.url}/v1/models")).status_code == 200
        engine.hang.add(path)
        with pytest.raises(httpx.ReadTimeout):
            await client.get(f"{engine.url}/v1/models", timeout=0.05)


async def test_a_slow_engine_answers_only_when_its_time_has_come(
    client: httpx.AsyncClient, clock: FakeClock
) -> None:
    async with running(Engine("e", clock=clock)) as engine:
        engine.delay_s = 3
        call = asyncio.ensure_future(client.get(f"{engine.url}/health"))
        await until(lambda: clock.sleepers == 1)
        await clock.advance(2.9)
        assert not call.done()
        await clock.advance(0.1)
        assert (await call).status_code == 200


async def test_a_token_guards_everything_but_health(client: httpx.AsyncClient) -> None:
    async with running(Engine("e", token="t")) as engine:
        assert (await client.get(f"{engine.url}/health")).status_code == 200
        assert (await client.get(f"{engine.url}/v1/models")).status_code == 401
        headers = {"authorization": "Bearer t"}
        answer = await client.get(f"{engine.url}/is_sleeping", headers=headers)
    assert answer.json() == {"is_sleeping": False}


async def test_engines_listen_at_addresses_of_their_own(client: httpx.AsyncClient) -> None:
    async with running(Engine("a", host="127.0.0.2")) as one:
        async with running(Engine("b", host="127.0.0.3", port=one.port)) as two:
            assert (await client.get(f"{two.url}/health")).status_code == 200
    assert one.requests == {}
    assert two.requests == {"/health": 1}
