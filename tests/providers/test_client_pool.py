"""The pool of clients: each is closed once nobody wants it, whatever comes between."""

from __future__ import annotations

import asyncio

import pytest

from agentnb.core.errors import AuthenticationFailed
from agentnb.providers.client_pool import ClientPool, Settings

HERE: Settings = (("URL", "here"),)
THERE: Settings = (("URL", "there"),)


class Client:
    """A client. To close a slow one takes for ever, at the first attempt."""

    def __init__(self, *, is_slow: bool) -> None:
        self.calls = 0
        self.is_rejected = False
        self.closed = asyncio.Event()
        self.is_closing = asyncio.Event()
        self._is_slow = is_slow

    async def close(self) -> None:
        if self._is_slow and not self.is_closing.is_set():
            self.is_closing.set()
            await asyncio.Event().wait()
        self.closed.set()


def pool_whose_first_is_slow() -> ClientPool[Client]:
    slow = [True]
    return ClientPool(lambda _: Client(is_slow=bool(slow and slow.pop())))


async def borrow(pool: ClientPool[Client], settings: Settings) -> Client:
    async with pool.borrowed(settings) as client:
        return client


async def close_by(way: str, pool: ClientPool[Client]) -> None:
    """One of the ways in which the client for `HERE` comes to be closed."""
    if way == "the end":
        await pool.aclose()
    elif way == "other settings":
        await borrow(pool, THERE)
    else:
        async with pool.borrowed(HERE):
            raise AuthenticationFailed("no such key")


@pytest.mark.parametrize("way", ["the end", "other settings", "a rejection"])
@pytest.mark.parametrize("goes_on", [True, False])
async def test_client_whose_closing_was_cancelled_is_not_lent_again_and_closed_by_the_next(
    way: str, goes_on: bool
) -> None:
    pool = pool_whose_first_is_slow()
    client = await borrow(pool, HERE)
    closing = asyncio.ensure_future(close_by(way, pool))
    await client.is_closing.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not client.closed.is_set()

    if goes_on:
        assert await borrow(pool, HERE) is not client
    else:
        await pool.aclose()

    assert client.closed.is_set()
