"""Kinds of errors: `BadInput` for what the user gave, `ResourceError` for what the machine or the
cluster lacks."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from attnlens.core import BadInput, ClusterLost, DiskFull, ExplainedError, ResourceError
from attnlens.core.files import explained_os_errors


def test_lost_resources_are_not_bad_input():
    assert {ExplainedError, ValueError} <= set(BadInput.__mro__)
    for kind in (ResourceError, ClusterLost, DiskFull):
        assert {ResourceError, ExplainedError} <= set(kind.__mro__)
        assert not issubclass(kind, BadInput)


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EACCES, BadInput)])
def test_errors_of_the_file_system_are_recognised_by_number(
    tmp_path: Path, number: int, kind: type[ExplainedError]
):
    with pytest.raises(kind), explained_os_errors(tmp_path):
        raise OSError(number, "words decide nothing")
