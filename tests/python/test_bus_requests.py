"""lumen_engine.bus: request and reply, waiting and with await."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest
from integration.bus_pair import PATIENCE
from lumen_engine import bus


def test_requests_and_replies_and_await(path: str) -> None:
    with bus.listen(path, role="both") as listener:

        def answer() -> None:
            with listener.responder(PATIENCE) as responder:
                late: list[bus.Request] = []
                for request in responder.requests(PATIENCE):
                    late.append(request)
                    if len(late) == 1 and request.type_id == 2:
                        continue  # answered after the next one
                    for one in reversed(late):
                        responder.reply(one.id, one.data.upper(), type_id=9, status=4)
                    late.clear()

        thread = threading.Thread(target=answer)
        thread.start()
        with bus.Requester(path) as requester:
            reply = requester.call(b"hello", timeout=PATIENCE)
            assert (reply.data, reply.type_id, reply.status) == (b"HELLO", 9, 4)
            first = requester.send(b"a", type_id=2)
            second = requester.send(b"b")
            got = {reply.id: reply.data for reply in requester.replies(PATIENCE)}
            assert got == {first: b"A", second: b"B"}

            async def several() -> list[bytes]:
                calls = [requester.acall(b"%d" % i, timeout=PATIENCE) for i in range(50)]
                return [reply.data for reply in await asyncio.gather(*calls)]

            assert asyncio.run(several()) == [b"%d" % i for i in range(50)]
            assert requester.in_flight == 0
        thread.join()


def test_an_answer_that_does_not_come_in_time(path: str) -> None:
    with bus.listen(path, role="both") as listener:
        requester = bus.Requester(path)
        responder = listener.responder(PATIENCE)
        with pytest.raises(TimeoutError):
            requester.call(b"x", timeout=0.01)

        async def wait() -> None:
            with pytest.raises(TimeoutError):
                await requester.acall(b"x", timeout=0.01)
            call = asyncio.ensure_future(requester.acall(b"y", timeout=PATIENCE))
            await asyncio.sleep(0)
            responder.close()
            with pytest.raises(bus.PeerClosed):
                await call

        asyncio.run(wait())
        assert requester.in_flight == 0


def test_a_signal_whose_handler_returns_does_not_end_a_call(path: str) -> None:
    with bus.listen(path, role="both") as listener:
        requester = bus.Requester(path)
        responder = listener.responder(PATIENCE)
        before = signal.signal(signal.SIGALRM, lambda *_: answer())

        def answer() -> None:
            request = next(responder.requests(PATIENCE))
            responder.reply(request.id, b"after the signal")

        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            assert requester.call(b"x", timeout=PATIENCE).data == b"after the signal"
        finally:
            signal.signal(signal.SIGALRM, before)


def test_await_keeps_its_timeout_while_no_more_may_be_in_flight(path: str) -> None:
    with bus.listen(path, role="both") as listener:
        requester = bus.Requester(path, in_flight=1)
        responder = listener.responder(PATIENCE)

        async def wait() -> None:
            first = asyncio.ensure_future(requester.acall(b"x", timeout=PATIENCE))
            await asyncio.sleep(0)
            with pytest.raises(TimeoutError):
                await requester.acall(b"y", timeout=0.01)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            requester.send(b"not taken")
            with pytest.raises(bus.BusError, match="are not taken"):
                await requester.acall(b"z", timeout=PATIENCE)

        asyncio.run(wait())
        responder.close()


def test_late_requests_give_their_room_back_though_none_is_answered(path: str) -> None:
    with bus.listen(path, role="both", capacity=4096) as listener:
        requester = bus.Requester(path)
        responder = listener.responder(PATIENCE)
        large = bytes(1500)
        while requester.send(large, timeout=0.01) is not None:
            pass
        assert all(reply.timed_out for reply in requester.replies(PATIENCE))
        taken: list[bus.Request] = []
        thread = threading.Thread(target=lambda: taken.append(next(responder.requests(PATIENCE))))
        thread.start()
        end = time.monotonic() + PATIENCE
        while requester.send(large, timeout=PATIENCE) is None:
            list(requester.replies(0.01))
            assert time.monotonic() < end
        thread.join()
        assert taken[0].data == large
        responder.close()
        requester.close()


@pytest.mark.parametrize("way", ["call", "replies"])
def test_late_replies_give_their_room_back_though_nobody_takes_them(path: str, way: str) -> None:
    with bus.listen(path, role="both", capacity=4096) as listener:
        requester = bus.Requester(path)
        responder = listener.responder(PATIENCE)
        large = bytes(1500)
        late = [requester.send(b"late") for _ in range(2)]
        requests = [next(responder.requests(PATIENCE)) for _ in late]
        for id in late:
            assert id is not None and requester.cancel(id)
        for request in requests:
            responder.reply(request.id, large)

        def answer() -> None:
            for request in responder.requests(PATIENCE):
                if not request.is_cancel:
                    responder.reply(request.id, large, timeout=PATIENCE)
                    return

        thread = threading.Thread(target=answer)
        thread.start()
        if way == "call":
            assert requester.call(b"x", timeout=PATIENCE).data == large
        else:
            requester.send(b"x")
            assert next(requester.replies(PATIENCE)).data == large
        thread.join()
        responder.close()
        requester.close()


def test_a_reply_of_several_buffers_is_one_message(path: str) -> None:
    with bus.listen(path, role="both", capacity=4096) as listener:
        requester = bus.Requester(path)
        responder = listener.responder(PATIENCE)
        for parts in ([], [b""], [b"ab", bytearray(b"c"), memoryview(b"defg")[::1]]):
            requester.send(b"x")
            request = next(responder.requests(PATIENCE))
            responder.reply(request.id, parts)
            (reply,) = requester.replies(PATIENCE)
            assert reply.data == b"".join(parts)
        requester.send(b"x")
        request = next(responder.requests(PATIENCE))
        with pytest.raises(TypeError):
            responder.reply(request.id, [b"a", "text"])
        with pytest.raises(ValueError):
            responder.reply(request.id, [bytes(3000), bytes(3000)])
        responder.reply(request.id, [b"still there"])
        (reply,) = requester.replies(PATIENCE)
        assert reply.data == b"still there"
        responder.close()
        requester.close()
