"""Recognises recordings by their first bytes, and names the one demuxer of libavformat that may read each."""

from __future__ import annotations

import mmap

_MPEG_BITRATES = {  # kbit/s by version and layer: ISO 11172-3 and 13818-3, table of bitrate_index
    (1, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (1, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (2, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (2, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MPEG_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}  # Hz by version bits
_ID3_HEADER_BYTES = 10
_ID3_FOOTER_FLAG = 0x10
_ID3_VERSIONS = (2, 3, 4)
_W64 = bytes.fromhex("726966662e91cf11a5d628db04c10000")
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
# First bytes -> demuxer.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"fLaC\x00", "flac"),  # STREAMINFO comes first
    (b"fLaC\x80", "flac"),
    (b"OggS\x00", "ogg"),  # its version
    (b"\x1aE\xdf\xa3", "matroska"),  # EBML: WebM too
    (_W64, "w64"),
    (_ASF, "asf"),
    (b"#!AMR\n", "amr"),
    (b"#!AMR-WB\n", "amr"),
    (b"caff\x00\x01", "caf"),
    (b".snd\x00\x00\x00", "au"),
)
_FORMS: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...], str], ...] = (  # first 4 bytes, those at 8, demuxer
    ((b"RIFF", b"RIFX", b"RF64", b"BW64"), (b"WAVE",), "wav"),
    ((b"FORM",), (b"AIFF", b"AIFC"), "aiff"),
)
_STILL_BRANDS = (b"avif", b"avis", b"crx ", b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"jp2 ")
_UNKNOWN_SIZE = 0x7FFF0000  # of a WAV from a pipe: 0xFFFFFFFF by ffmpeg, 0x7FFFF000 and more by sox
_OGG_PAGE_BYTES = 65_307  # at most: RFC 3533
_ROUNDING_BYTES = 64  # 2 ms of 16 bits at 16 kHz: some programs count a header wrongly
_WHITE_SPACE = b"\t\n\v\f\r"
_QUICKTIME_BOXES = (b"moov", b"mdat", b"wide", b"pnot")  # that films from before ftyp begin with


def sound_demuxer(head: bytes) -> str | None:
    """libavformat's name of the container that ``head`` begins; None for what is no recording.

    Text is never one, whatever words it begins with ("Citywide report", "FORMATO AIFF"): sizes and versions beside a
    signature must be binary. Playlists and session descriptions (HLS, DASH, ffconcat, SDP) are text that names files
    and addresses, which libavformat would open.

    Args:
        head: the first bytes; with all of them the answer is right behind a long ID3 tag too.
    """
    at = id3_bytes(head)
    if at:
        return _frames_demuxer(head, at) or ("flac" if head[at : at + 4] == b"fLaC" else "mp3")
    for signature, demuxer in _SIGNATURES:
        if head.startswith(signature):
            return demuxer
    for starts, types, demuxer in _FORMS:
        if head[:4] in starts and head[8:12] in types and _is_binary(head[4:8] + head[16:20]):  # two sizes
            return demuxer
    if _is_film(head):
        return "mov"
    return _frames_demuxer(head, 0) or _padded_demuxer(head)


def id3_bytes(head: bytes) -> int:
    """The length of the ID3v2 tag at the beginning; 0 where there is none."""
    if head[:3] != b"ID3" or len(head) < _ID3_HEADER_BYTES or head[3] not in _ID3_VERSIONS or max(head[6:10]) > 0x7F:
        return 0
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    return size + _ID3_HEADER_BYTES * (2 if head[5] & _ID3_FOOTER_FLAG else 1)


def missing_bytes(data: bytes | mmap.mmap, demuxer: str) -> int:
    """How many bytes of a WAV, an AIFF or an Ogg file are not there by what it says itself; 0 where it does not say.

    libavformat takes such files as whole: it believes the length of the file, not that of its header.
    """
    if demuxer in ("wav", "aiff"):
        size = int.from_bytes(data[4:8], "little" if data[:4] == b"RIFF" else "big")
        end = size + 8 if data[:4] in (b"RIFF", b"RIFX", b"FORM") and size < _UNKNOWN_SIZE else 0
    elif demuxer == "ogg":
        at = data.rfind(b"OggS", max(0, len(data) - 2 * _OGG_PAGE_BYTES))
        lacing = data[at + 27 : at + 27 + data[at + 26]] if 0 <= at <= len(data) - 27 else b""
        end = at + 27 + len(lacing) + sum(lacing) if at >= 0 else 0
    else:
        end = 0
    missing = end - len(data)
    return missing if missing > _ROUNDING_BYTES else 0


def begins_with_ftyp(head: bytes) -> bool:
    """Whether the first box says which of the ISO base media formats it is: films, sounds, and images too."""
    return head[4:8] == b"ftyp" and _is_binary(head[:4])


def _is_film(head: bytes) -> bool:
    """ISO base media: mp4, m4a, mov, 3gp; not the images that share it."""
    if begins_with_ftyp(head):
        return head[8:12] not in _STILL_BRANDS and b"avif" not in head[16 : min(int.from_bytes(head[:4], "big"), 256)]
    if head[4:8] not in _QUICKTIME_BOXES or not _is_binary(head[:4]):
        return False
    return int.from_bytes(head[:4], "big") >= 8 or head[:4] == b"\x00\x00\x00\x01"


def _is_binary(sizes: bytes) -> bool:
    """Whether bytes that tell sizes hold a control character, or 0xFF of an unknown size: text in UTF-8 has neither.

    A size of 32 bits has one below 150 MB.
    """
    return any(byte == 0xFF or (byte < 0x20 and byte not in _WHITE_SPACE) for byte in sizes)


def _frames_demuxer(head: bytes, at: int) -> str | None:
    """The demuxer of bare frames, where two follow each other; one where the bytes end with it."""
    for demuxer, frame_bytes in (("mp3", _mpeg_frame_bytes), ("aac", _adts_frame_bytes)):
        size = frame_bytes(head, at)
        if size and (at + size + 4 > len(head) or frame_bytes(head, at + size)):
            return demuxer
    return None


def _padded_demuxer(head: bytes) -> str | None:
    """The demuxer of frames behind zeros, which some editors leave in place of a tag; two frames must be there."""
    at = len(head) - len(head.lstrip(b"\x00"))
    size = _mpeg_frame_bytes(head, at) if at else None
    return "mp3" if size and _mpeg_frame_bytes(head, at + size) else None


def _mpeg_frame_bytes(data: bytes, at: int) -> int | None:
    """The length of the MPEG audio frame (layers 2 and 3) at a position; None where there is none.

    Layer 1 is left out: nobody has it any more, and its first two bytes are those of UTF-16.
    """
    if len(data) < at + 4 or data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    version_bits, layer = data[at + 1] >> 3 & 3, 4 - (data[at + 1] >> 1 & 3)
    bitrate_index, rate_index = data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version_bits == 1 or layer not in (2, 3) or not 0 < bitrate_index < 15 or rate_index == 3:
        return None
    version = 1 if version_bits == 3 else 2
    bitrate = 1000 * _MPEG_BITRATES[version, layer][bitrate_index - 1]
    samples = 576 if version == 2 and layer == 3 else 1152
    return samples // 8 * bitrate // _MPEG_RATES[version_bits][rate_index] + (data[at + 2] >> 1 & 1)


def _adts_frame_bytes(data: bytes, at: int) -> int | None:
    """The length of the AAC frame at a position (ISO 13818-7, ADTS); None where there is none."""
    if len(data) < at + 7 or data[at] != 0xFF or data[at + 1] & 0xF6 != 0xF0 or data[at + 2] >> 2 & 15 > 12:
        return None
    size = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
    return size if size > 7 else None
