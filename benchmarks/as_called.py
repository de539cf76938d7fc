"""Is captured code what a plain call is? Networks that nobody wrote for us: equal, equal but for rounding, or different.

Models of timm, torchaudio, torchvision and transformers with random weights. Some of the last look whether a stream captures, and go
another way then: those are to be told, and no other. Some make constants in host memory in each call, which no capture allowed. Then
the networks of `parallelise_networks.py`, and the code of `common_code.py`.

python benchmarks/as_called.py [RESULT.json] [--part 0/1] [--seconds 200]
python benchmarks/as_called.py [RESULT.json] --results-of PART.json ...
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Case = tuple[Callable[..., Any], tuple[Any, ...]]
DEVICE, HALF = "cuda", torch.float16
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def called(model: nn.Module, *inputs: Tensor, dtype: torch.dtype = HALF) -> Case:
    """Return a model as a function of its inputs, which returns all tensors of its result."""
    model = model.to(DEVICE, dtype).eval()

    def call(*given: Tensor) -> Any:
        with torch.no_grad():
            return tuple(_tensors(model(*given)))

    return call, tuple(one.to(DEVICE, dtype) if one.is_floating_point() else one.to(DEVICE) for one in inputs)


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, tuple | list) else ()
    return [one for part in parts for one in _tensors(part)]


def words(batch: int = 2, length: int = 32) -> Tensor:
    return torch.randint(5, 90, (batch, length))


def language(name: str, *inputs: Tensor, **sizes: Any) -> Case:
    """Return a model of transformers, made by the name of its class."""
    library = importlib.import_module("transformers")
    kind = getattr(library, name)
    settings = {**SMALL, "vocab_size": 100, **sizes}
    return called(kind(kind.config_class(**settings)), *(inputs or (words(),)))


def speech(name: str) -> Case:
    sizes = {"conv_dim": (32,) * 3, "conv_kernel": (10, 3, 2), "conv_stride": (5, 2, 2), "num_feat_extract_layers": 3}
    return language(name, torch.randn(2, 8000), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, **sizes)


def masked(case: Case) -> Case:
    """Return a model that is given a mask, too, of which nothing is masked."""
    call, (x,) = case
    return call, (x, torch.ones(x.shape, dtype=torch.int64, device=x.device))


def image(name: str, size: int = 224) -> Case:
    return called(importlib.import_module("timm").create_model(name), torch.randn(1, 3, size, size))


def sound(name: str, *inputs: Tensor, dtype: torch.dtype = torch.float32, **sizes: Any) -> Case:
    return called(getattr(importlib.import_module("torchaudio.models"), name)(**sizes), *inputs, dtype=dtype)


def seen(name: str, *shape: int, part: str = "models") -> Case:
    return called(getattr(importlib.import_module(f"torchvision.{part}"), name)(weights=None), torch.randn(shape or (1, 3, 224, 224)))


def drawing(x: Tensor) -> Tensor:
    """Draw random numbers, which go on from call to call."""
    return torch.dropout(x, 0.5, train=True) + torch.randn_like(x)


def trained() -> Case:
    """Return a step that changes weights, an optimiser and running means."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(3136, 10)).to(DEVICE)
    x, labels = torch.randn(8, 3, 16, 16, device=DEVICE), torch.randint(0, 10, (8,), device=DEVICE)
    adam = torch.optim.Adam(model.parameters(), capturable=True)

    def step(x: Tensor, labels: Tensor) -> Tensor:
        adam.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        adam.step()
        return loss.detach()

    return step, (x, labels)


TIMM = (
    "hrnet_w18_small crossvit_tiny_240 nasnetalarge res2net50_26w_4s swin_tiny_patch4_window7_224 coat_tiny levit_128 xcit_nano_12_p16_224 "
    "convnext_tiny maxvit_nano_rw_256 davit_tiny twins_svt_small pit_ti_224 dla34 ghostnet_100 mixer_s32_224 mobilevit_s edgenext_small "
    "volo_d1_224 focalnet_tiny_srf poolformer_s12 fastvit_t8 repvit_m0_9 tiny_vit_5m_224 nest_tiny efficientformer_l1 gmlp_s16_224 "
    "vit_tiny_patch16_224 beit_base_patch16_224 swinv2_tiny_window8_256 inception_next_tiny hgnet_tiny cait_xxs24_224"
)
_SIZES = {"240": 240, "256": 256}
CASES: dict[str, Callable[[], Case]] = {
    **{f"{name}, with a mask": partial(lambda name: masked(language(f"{name}Model")), name) for name in ("Bert", "MPNet", "Albert")},
    **{f"{name}, with a mask": partial(lambda name: masked(speech(f"{name}Model")), name) for name in ("Wav2Vec2", "Hubert", "WavLM")},
    **{name: partial(language, f"{name}Model") for name in ("Bert", "Roberta", "Electra", "MPNet", "Albert", "XLMRoberta", "Ernie")},
    **{name: partial(speech, f"{name}Model") for name in ("Wav2Vec2", "Hubert", "WavLM", "UniSpeech", "Data2VecAudio")},
    "GPT2": partial(language, "GPT2Model", n_embd=64, n_layer=2, n_head=4, use_cache=False),
    "Llama": partial(language, "LlamaModel", num_key_value_heads=4, use_cache=False),
    "Qwen2Moe": partial(
        language, "Qwen2MoeModel", num_key_value_heads=4, use_cache=False, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "Mixtral": partial(language, "MixtralModel", num_key_value_heads=4, use_cache=False, num_local_experts=4),
    "T5 encoder": partial(language, "T5EncoderModel", d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16),
    "Deberta": partial(language, "DebertaModel"),
    "ESM": partial(language, "EsmModel", pad_token_id=1),
    "FNet": partial(language, "FNetModel", tpu_short_seq_length=32),
    "HDemucs": partial(sound, "HDemucs", torch.randn(1, 2, 16384), sources=["a", "b"], channels=16, depth=5),
    "Emformer": partial(
        sound,
        "Emformer",
        torch.randn(2, 40, 64),
        torch.tensor([36, 36]),
        input_dim=64,
        num_heads=4,
        ffn_dim=128,
        num_layers=2,
        segment_length=4,
        right_context_length=4,
    ),
    "Conformer": partial(
        sound,
        "Conformer",
        torch.randn(2, 40, 64),
        torch.tensor([40, 40]),
        input_dim=64,
        num_heads=4,
        ffn_dim=128,
        num_layers=2,
        depthwise_conv_kernel_size=31,
    ),
    "ConvTasNet": partial(sound, "ConvTasNet", torch.randn(2, 1, 8000)),
    "DeepSpeech": partial(sound, "DeepSpeech", torch.randn(2, 1, 40, 32), n_feature=32, n_hidden=128),
    "Wav2Letter": partial(sound, "Wav2Letter", torch.randn(2, 1, 16000)),
    **{name: partial(image, name, next((size for key, size in _SIZES.items() if name.endswith(key)), 224)) for name in TIMM.split()},
    **{
        name: partial(seen, name) for name in ("googlenet", "inception_v3", "densenet121", "efficientnet_b0", "regnet_y_400mf", "swin_v2_t")
    },
    "random numbers": lambda: (drawing, (torch.randn(64, 64, device=DEVICE),)),
    "a training step": trained,
}


def all_cases() -> dict[str, Callable[[], Case]]:
    """Return the cases of this file and of others."""
    common_code, networks = (importlib.import_module(name) for name in ("common_code", "networks"))

    def made(make: Callable[[int], Any]) -> Case:
        network = make(1)
        return network.function, tuple(network.inputs)

    known: dict[str, Callable[[], Case]] = {name: partial(made, make) for name, make in networks.NETWORKS.items()}
    return CASES | known | dict(common_code.CASES)


def tried(make: Callable[[], Case]) -> dict[str, Any]:
    """Return what the capture of a case says, and what it costs beside a plain capture of PyTorch's."""
    import streamscope as ss

    torch.manual_seed(0)
    function, inputs = make()
    start = time.perf_counter()
    try:
        captured = ss.capture(function, *inputs)
    except ss.StreamscopeError as error:
        return {"refused": str(error)[:400]}
    said = captured.as_called
    parting = None if said.parting is None else str(said.parting)
    found = {"verdict": said.verdict, "error": said.error, "first": said.first, "parting": parting, "text": str(said)}
    return {**found, "nodes": len(captured.nodes), "seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "as_called.json")
    parser.add_argument("--part", default="0/1", help="which of how many parts, as 0/4")
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins later")
    parser.add_argument("--results-of", nargs="*", type=Path, default=[], help="put together the results of parts, and try nothing")
    options = parser.parse_args()
    if options.results_of:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.results_of]
        results = {name: one for part in parts for name, one in part["results"].items()}
        verdicts = [one.get("verdict", "refused" if "refused" in one else "failed") for one in results.values()]
        content = {"what": parts[0]["what"], "verdicts": {name: verdicts.count(name) for name in sorted(set(verdicts))}}
        written(options.result, {**parts[0], **content, "results": results})
        return
    from provenance import provenance

    import streamscope as ss

    warnings.simplefilter("ignore")
    results = {}
    start, (part, count) = time.perf_counter(), map(int, options.part.split("/"))
    for name, make in [*all_cases().items()][part::count]:
        if time.perf_counter() - start > options.seconds:
            break
        try:
            results[name] = tried(make)
        except Exception as error:  # noqa: BLE001 — what fails is a result, too
            traceback.print_exc(limit=-3)
            results[name] = {"failed": f"{type(error).__name__}: {error}"[:400]}
        print(name, json.dumps(results[name], ensure_ascii=False)[:500], flush=True)
        libraries = {one: metadata.version(one) for one in ("torch", "torchvision", "timm", "transformers")}
        content = {"what": "captured code beside a plain call: equal in each bit, equal but for rounding, or different", "results": results}
        written(options.result, content | provenance(ss.open_device("cuda"), **libraries))


def written(path: Path, content: dict[str, Any]) -> None:
    """Write a result."""
    from streamscope.files import written_whole

    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
