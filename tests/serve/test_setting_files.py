"""The contents of files of settings, as a worker gets them."""

import os
from pathlib import Path

import pytest

from aiowheel.serve._setting_files import (
    forget_settings,
    given_settings,
    given_to_worker,
    read_setting,
    setting_file,
    settings_read,
)

pytestmark = [pytest.mark.one_build, pytest.mark.posix]


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_worker_has_the_contents_that_its_parent_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Any bytes, also where the system has no files in memory; other files are read."""
    if where == "disk":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    content = bytes(range(256))
    known, other = tmp_path / "known", tmp_path / "other"
    known.write_bytes(content)
    other.write_bytes(b"other")
    forget_settings()
    read_setting(str(known))
    with given_to_worker(settings_read()) as (descriptor, variables):
        known.write_bytes(b"refused")
        inherited = os.dup(descriptor)
    for name in variables:
        monkeypatch.setenv(name, str(inherited))
    given_settings.cache_clear()
    try:
        with setting_file(str(known)) as copy, setting_file(str(other)) as same:
            assert Path(copy).read_bytes() == content
            assert Path(same) == other
        assert read_setting(str(known)) == content
        assert not any(name in os.environ for name in variables)
    finally:
        given_settings.cache_clear()
        forget_settings()
