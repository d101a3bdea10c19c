"""Chat templates of the two kinds that text models come with, and a tokenizer for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from text.bpe_folder import NAMES, added, tokenizer_json, trained, write_new_layout

# Not flagged special, as in real models: they are part of what a model writes.
WRITTEN = ("<think>", "</think>", "<tool_call>", "</tool_call>")

#: A system message of the template's own, unless the messages begin with one.
PLAIN = """
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

#: Takes earlier answers apart at the end of their reasoning, of which only the last ones' is kept.
THINKING = """
{%- set ns = namespace(last=messages|length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- if ns.searching and message.role == 'user' and not (
            message.content.startswith('<tool_call>') and message.content.endswith('</tool_call>')
        ) %}
        {%- set ns.searching = false %}
        {%- set ns.last = messages|length - 1 - loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n') %}
            {%- set reasoning = reasoning.split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning.strip('\\n') }}
            {{- '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content }}
        {%- endif %}
    {%- else %}
<|im_start|>{{ message.role + '\\n' + content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


#: Chats without names of control tokens in what users wrote.
ORDINARY = {
    "one": [user("Größe, 你好 and don't  stop\n")],
    "system": [system("Answer in one word."), user("The quick fox?")],
    "turns": [user("a"), assistant("b\n\nc"), user(" d "), assistant(""), user("e")],
    "late system": [user("a"), system("Now in German."), user("b")],
    "empty": [user("")],
    "json": [user('{"a": "<b>", "c": [1, 2]} & \u2028 👍🏽 \\n')],
}


def control_ids() -> dict[str, int]:
    names = (*NAMES, *WRITTEN)
    return {name: len(trained()[0]) + i for i, name in enumerate(names)}


def chat_tokenizer_json() -> dict[str, Any]:
    tokens = [
        added(name, id=i, special=added(name)["special"] and name not in WRITTEN)
        for name, i in control_ids().items()
    ]
    return {**tokenizer_json(), "added_tokens": tokens}


def write_chat_tokenizer(folder: Path) -> Path:
    return write_new_layout(folder, chat_tokenizer_json())
