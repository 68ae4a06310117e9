"""Upload a model folder to the Hugging Face hub.

What can be wrong without a connection is refused by `refuse_push`, before hours of training.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from headcount.errors import HeadcountError
from headcount.loading.folder import first_line
from headcount.runs.output import PREDICTIONS
from headcount.runs.unfinished import SETTINGS

# What a model's folder has besides the model: answers with the user's own data, and paths.
OWN = (f"{PREDICTIONS}/*", SETTINGS)
LEFT_OUT = (*OWN, "checkpoint-*/*", "*.tmp")  # and what an interrupted write may have left


def refuse_push(name: str) -> None:
    """Refuse a name that the hub cannot have, or an upload without a token; asks no server.

    Args:
        name: the model's name on the hub, with its owner or without.

    Raises:
        HeadcountError: what is wrong, and what to do.
    """
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise HeadcountError(
            f"{name!r} cannot be the name of a model on the hub: {first_line(error)}; give a name "
            "as owner/model"
        ) from error
    if get_token() is None:
        raise HeadcountError(
            f"there is no token to push to {name} on the hub with; run: hf auth login, or set "
            "HF_TOKEN"
        )


def push(folder: Path, name: str, private: bool = False) -> str:
    """Upload a model folder to the hub. Files there that have other names stay.

    Predictions and settings of the run stay here: they hold the user's own data and paths.

    Args:
        folder: a folder that `headcount prune` or `headcount export` wrote.
        name: the model's name on the hub, with its owner or without. It is made if there is none.
        private: make a new model private; one that is there stays as it is.

    Returns:
        The address of the model.

    Raises:
        HeadcountError: the name is wrong, or the hub cannot be reached or refuses. The folder is
            unchanged.
    """
    refuse_push(name)
    api = HfApi()
    try:
        made = api.create_repo(name, private=private or None, exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id,
            folder_path=folder,
            ignore_patterns=list(LEFT_OUT),
            commit_message="Upload a model with fewer heads",
        )
    except Exception as error:  # of the hub, of its server, of the network: of no common type
        raise HeadcountError(
            f"{folder} is complete, but was not pushed to {name} on the hub: {_reason(error)}, "
            f"then run: {_by_hand(folder, name)}"
        ) from error
    return str(made)


def _by_hand(folder: Path, name: str) -> str:
    """The command that uploads the folder without headcount."""
    words = ["hf", "upload", name, str(folder), "."]
    return shlex.join([*words, *(word for own in OWN for word in ("--exclude", own))])


def _reason(error: BaseException) -> str:
    """What went wrong, and what to do about it."""
    chain = [error]  # what happened in the middle of an upload is the cause of another error
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and len(chain) < 20:
        chain.append(cause)
    answer = next((one for one in chain if isinstance(one, HfHubHTTPError)), None)
    if answer is None:
        return f"it cannot be reached ({first_line(chain[-1])}); connect to it"
    status = answer.response.status_code
    if status == 401:
        return "it does not know the token; log in again with hf auth login"
    if status == 403:
        return "the token may not write there; use one that may, or another name"
    return f"it answered {status} ({first_line(answer)}); mend that"
