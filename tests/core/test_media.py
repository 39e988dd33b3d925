"""Images and PDFs as values: what they are by their bytes, cost, weigh and are called."""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace

import pytest

from agentnb.core.budget import estimate_input_tokens
from agentnb.core.codec import message_of, plain
from agentnb.core.keys import key_of
from agentnb.core.media import (
    MEDIA_TYPES,
    PDF,
    EachOnce,
    image_size,
    media_tokens,
    media_type_of,
    media_words,
    with_media,
)
from agentnb.core.secrets import Secrets
from agentnb.core.types import CompletionRequest, MediaBlock, Message, Role, TextBlock, user_message
from tests.files_of import gif, jpeg, pdf, png, webp

HEADS = [
    ("image/png", png(640, 480)),
    ("image/jpeg", jpeg(640, 480)),
    ("image/gif", gif(640, 480)),
    ("image/webp", webp(b"VP8X", 640, 480)),
    ("image/webp", webp(b"VP8L", 640, 480)),
    ("image/webp", webp(b"VP8 ", 640, 480)),
]


def block(media_type: str, content: bytes, name: str = "") -> MediaBlock:
    return MediaBlock(media_type, base64.b64encode(content).decode(), name)


def asking(*blocks: MediaBlock) -> CompletionRequest:
    return CompletionRequest("any", "", (Message(Role.USER, (*blocks, TextBlock("What?"))),))


@pytest.mark.parametrize(("media_type", "content"), HEADS)
def test_image_is_known_and_measured_by_its_first_bytes(media_type: str, content: bytes) -> None:
    assert media_type_of(content) == media_type
    assert image_size(media_type, content) == (640, 480)
    for length in range(len(content)):  # cut anywhere: no size, and no error
        assert image_size(media_type, content[:length]) in (None, (640, 480))
    assert media_tokens(block(media_type, content)) == 410  # 640 * 480 / 750, rounded up


def test_files_of_other_kinds_are_not_known() -> None:
    assert media_type_of(pdf()) == PDF
    assert [media_type_of(each) for each in (b"", b"BM6", b"<svg/>", b"RIFF....WAVE", b"text")] == (
        [None] * 5
    )


@pytest.mark.parametrize(
    ("media_type", "content", "tokens"),
    [
        ("image/png", png(1, 1), 1),
        ("image/png", png(1000, 1), 2),
        ("image/jpeg", jpeg(8000, 8000), 1600),  # scaled down first
        ("image/jpeg", jpeg(15_680, 100), 21),  # to 1,568 by 10 pixels
        ("image/webp", b"RIFF....WEBPwhat", 1600),  # no size
        (PDF, pdf(1), 2_000),
        (PDF, pdf(12), 24_000),
        (PDF, b"%PDF-1.7" + b"packed" * 20_000, 6_000),  # 120 kB without a page
    ],
)
def test_tokens_are_estimated_by_pixels_and_pages(
    media_type: str, content: bytes, tokens: int
) -> None:
    given = block(media_type, content)

    assert media_tokens(given) == tokens
    assert estimate_input_tokens(asking(given)) == tokens + 2  # and the text


def test_key_has_the_content_and_neither_the_name_nor_another_place() -> None:
    one, same, other = block("image/png", b"1", "a.png"), block("image/png", b"1", "b.png"), b"2"
    key = key_of("p/m", asking(one))

    assert key_of("p/m", asking(same)) == key == key_of("p/m", asking(one.named()))
    different = [
        asking(block("image/png", other)),
        asking(replace(one, media_type="image/gif")),
        asking(one, one),
        asking(),
    ]
    assert len({key, *(key_of("p/m", each) for each in different)}) == 5


def test_secret_that_base64_has_by_chance_leaves_the_file_whole() -> None:
    secrets = Secrets({"aGVsbG8tdGhl": "KEY"})
    one = block("image/png", b"hello-there", "my aGVsbG8tdGhl.png")
    assert "aGVsbG8tdGhl" in one.data

    written = plain(one, secrets.mask)

    assert written["data"] == one.data
    assert written["name"] == "my [secret KEY].png"
    by_hand = plain(MediaBlock("image/png", "key: aGVsbG8tdGhl"), secrets.mask)
    assert by_hand["data"] == "key: [secret KEY]"  # no base64, and so no file


def test_block_comes_back_from_plain_values_and_from_a_pickle() -> None:
    message = Message(Role.USER, (block("image/png", png(), "x.png"), TextBlock("What?")))
    assert message.content[0].digest  # type: ignore[union-attr]

    assert message_of(plain({"role": "user", "content": message.content})) == message
    assert pickle.loads(pickle.dumps(message)) == message
    assert message.text == "What?"


def test_file_that_is_named_keeps_all_but_its_data() -> None:
    one = block("image/png", b"\0" * 12_345, "kitchen.png")
    named = one.named()

    assert (named.digest, named.size, named.name) == (one.digest, 12_345, "kitchen.png")
    assert named.is_named
    assert not one.is_named
    assert len(named.data) < 100
    assert named.named() == named
    assert media_words(named) == media_words(one) == "[image: kitchen.png, 13 kB]"
    assert len(repr(one)) < 100


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (block(PDF, b"12"), "[PDF: 2 bytes]"),
        (block(PDF, b"1" * 2_345_678, "a\x1b[31m.pdf"), "[PDF: a\\x1b[31m.pdf, 2.3 MB]"),
        (block("image/gif", b"", "x"), "[image: x, 0 bytes]"),
    ],
)
def test_words_for_a_file_have_its_kind_name_and_size(given: MediaBlock, words: str) -> None:
    assert media_words(given) == words


def test_file_is_written_once_and_read_everywhere() -> None:
    one, again = block("image/png", b"1", "a.png"), block("image/png", b"1", "b.png")
    messages = (user_message("u"), Message(Role.USER, (one, again)), Message(Role.USER, (one,)))
    write, read = EachOnce(), EachOnce()

    written = with_media(messages, write.write)

    files = [b for m in written for b in m.content if isinstance(b, MediaBlock)]
    assert [each.is_named for each in files] == [False, True, True]
    assert with_media(written, read.read) == messages
    assert with_media(messages[:1], write.write) is not None
    alone = EachOnce().read(one.named())  # nothing has it: it stays named
    assert alone == one.named()


def test_types_are_those_that_both_apis_take() -> None:
    assert len(MEDIA_TYPES) == 5
    assert not MediaBlock("image/png", "sha256:not/5").is_named
