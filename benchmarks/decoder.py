"""A decoder of transformers with a static cache, token by token: eager, as a CUDA graph, compiled, and through `ss.parallelise`.

    python benchmarks/decoder.py [RESULT.json] [--tokens 40] [--layers 12] [--width 2048] [--only eager,parallelise]

The weights are random and nothing is downloaded. Each way begins with the same prompt, takes the likeliest token and goes on with it. The
tokens of all ways have to be equal to the eager ones. Times are of whole runs, each ending with a synchronisation; ways take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

import streamscope as ss
from streamscope.files import written_whole

HAS_GPU = torch.cuda.is_available()
WHERE = "cuda" if HAS_GPU else "cpu"
PROMPT, TURNS = 16, 7

Step = Callable[[Any, Any], Any]
"""Takes a token and its place, both of shape (1,) or (1, 1), and returns the next token."""


def decoder(width: int, layers: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 128,
        num_key_value_heads=width // 128,
        intermediate_size=width * 11 // 4,
        vocab_size=32_000,
        max_position_embeddings=512,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(WHERE, torch.bfloat16).eval()


class Greedy:
    """A model with its cache, and the step that takes the likeliest token."""

    def __init__(self, model: LlamaForCausalLM, most: int) -> None:
        self.model, self.cache = model, StaticCache(config=model.config, max_cache_len=most)
        self.call: Callable[..., Any] = model

    def step(self, token: Any, place: Any) -> Any:
        found = self.call(input_ids=token, position_ids=place, past_key_values=self.cache, use_cache=True)
        return found.logits[:, -1].argmax(-1, keepdim=True)

    def begin(self, prompt: Any) -> Any:
        """Empty the cache, take the prompt, and return the first token after it."""
        self.cache.reset()
        places = torch.arange(prompt.shape[1], device=WHERE)[None]
        return self.step(prompt, places)


def generated(greedy: Greedy, step: Step, prompt: Any, tokens: int) -> tuple[list[int], float]:
    """Return the tokens, and the seconds that all but the first took."""
    call, greedy.call = greedy.call, greedy.model  # The prompt is taken plainly, by every way.
    token = greedy.begin(prompt).clone()
    greedy.call = call
    places = [torch.tensor([[prompt.shape[1] + n]], device=WHERE) for n in range(tokens)]
    synchronised()
    start, found = time.perf_counter(), []
    for place in places:
        token = step(token, place)
        found.append(token.clone())
    synchronised()
    seconds = time.perf_counter() - start
    return torch.cat(found).flatten().tolist(), seconds


def synchronised() -> None:
    if HAS_GPU:
        torch.cuda.synchronize()


def eager(model: Any, most: int, prompt: Any) -> tuple[Greedy, Step]:
    greedy = Greedy(model, most)
    greedy.begin(prompt)
    return greedy, greedy.step


def in_graph(model: Any, most: int, prompt: Any) -> tuple[Greedy, Step]:
    """Capture the step as PyTorch's documentation does."""
    greedy = Greedy(model, most)
    token, place = greedy.begin(prompt).clone(), torch.tensor([[prompt.shape[1]]], device=WHERE)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            greedy.step(token, place)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        following = greedy.step(token, place)

    def step(given: Any, at: Any) -> Any:
        token.copy_(given)
        place.copy_(at)
        graph.replay()
        return following

    return greedy, step


def compiled(model: Any, most: int, prompt: Any) -> tuple[Greedy, Step]:
    greedy = Greedy(model, most)
    token, place = greedy.begin(prompt).clone(), torch.tensor([[prompt.shape[1]]], device=WHERE)
    greedy.call = torch.compile(model, mode="reduce-overhead")
    for _ in range(3):
        greedy.step(token, place)
    return greedy, greedy.step


def parallelised(model: Any, most: int, prompt: Any) -> tuple[Greedy, Step]:
    greedy = Greedy(model, most)
    token, place = greedy.begin(prompt).clone(), torch.tensor([[prompt.shape[1]]], device=WHERE)
    fast = ss.parallelise(greedy.step, token, place, outputs="static")
    print(fast.verdict, flush=True)
    return greedy, fast


WAYS = {"eager": eager, "torch.cuda.CUDAGraph": in_graph, "torch.compile": compiled, "parallelise": parallelised}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path(__file__).parent / "results" / "decoder.json")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--only", default=",".join(WAYS))
    chosen = parser.parse_args()
    model, most = decoder(chosen.width, chosen.layers), PROMPT + chosen.tokens + 8
    prompt = torch.randint(0, 32_000, (1, PROMPT), device=WHERE)
    ready, errors = dict[str, tuple[Greedy, Step]](), dict[str, str]()
    with torch.no_grad():
        for name in chosen.only.split(","):
            try:
                ready[name] = WAYS[name](model, most, prompt)
                generated(*ready[name], prompt, chosen.tokens)
            except Exception as error:  # noqa: BLE001 — the others are measured
                ready.pop(name, None)
                errors[name] = f"{type(error).__name__}: {error}"
                print(f"{name}: {errors[name]}", flush=True)
        tokens, times = dict[str, list[int]](), {name: list[float]() for name in ready}
        for _ in range(TURNS):
            for name, (greedy, step) in ready.items():
                tokens[name], seconds = generated(greedy, step, prompt, chosen.tokens)
                times[name].append(seconds)
    right = tokens.get("eager")
    found = {}
    for name, each in times.items():
        took, equal = 1e3 * statistics.median(each) / chosen.tokens, sum(a == b for a, b in zip(tokens[name], right or [], strict=False))
        found[name] = {"ms_a_token": took, "equal": equal}
        print(f"{name:24} {took:8.3f} ms a token, {1e3 / took:8.1f} tokens a second, {equal} of {chosen.tokens} equal", flush=True)
    versions = {name: metadata.version(name) for name in ("torch", "transformers")}
    sizes = {"tokens": chosen.tokens, "layers": chosen.layers, "width": chosen.width, "dtype": "bfloat16"}
    with written_whole(chosen.out) as path:
        made = provenance(ss.open_device("auto"), **versions)
        path.write_text(json.dumps({"ways": found, "errors": errors, **sizes, **made}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
