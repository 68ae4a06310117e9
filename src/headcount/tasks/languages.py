"""Models for many languages mark each sentence with a token for its language."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from headcount.errors import HeadcountError


def set_languages(tokenizer: Any, source: str, target: str) -> None:
    """Tell a tokenizer for many languages which two these are; any other is left as it is."""
    if hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang"):
        tokenizer.src_lang = _code(tokenizer, source, "source_code")
        tokenizer.tgt_lang = _code(tokenizer, target, "target_code")


def begin_with_language(model: PreTrainedModel, tokenizer: Any) -> None:
    """Let translations begin with the token of the target's language, where there is one."""
    language = getattr(tokenizer, "tgt_lang", None)
    if language is None or not hasattr(tokenizer, "src_lang"):
        return
    token = _codes(tokenizer)[language]
    if tokenizer(text_target="")["input_ids"][0] == token:
        model.generation_config.forced_bos_token_id = token
    else:
        # The first mBART has the language behind a sentence, and wraps it round to the front.
        model.config.decoder_start_token_id = token
        model.generation_config.decoder_start_token_id = token


def _code(tokenizer: Any, language: str, option: str) -> str:
    """What the tokenizer calls a language: de, de_DE; deu_Latn must be given."""
    codes = _codes(tokenizer)
    if language in codes:
        return language
    near = [code for code in codes if code.startswith(f"{language}_")]
    if len(near) == 1:
        return near[0]
    some = ", ".join(sorted(near or codes)[:6])
    raise HeadcountError(
        f"the tokenizer has no single language {language}; give its code as the option {option}, "
        f"for example one of {some}"
    )


def _codes(tokenizer: Any) -> dict[str, int]:
    """The tokens of the languages, by code."""
    known = getattr(tokenizer, "lang_code_to_id", None)
    if known:
        return dict(known)
    # NLLB keeps its codes only as special tokens, as they are: deu_Latn.
    tokens = [str(token) for token in tokenizer.get_added_vocab() if "_" in str(token)]
    return {token: tokenizer.convert_tokens_to_ids(token) for token in tokens}
