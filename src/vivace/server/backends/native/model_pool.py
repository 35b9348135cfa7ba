"""The models that are loaded, each with an engine of its own, chosen by name without reloading.

A turn holds its model while it runs. A model is closed only when no turn holds it and another one needs its
room: the least recently used goes first. A turn whose model has no room waits until one is free, and turns
that come later wait behind it. Owns when models are loaded and closed. Does not own turns.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vivace.config import Settings
from vivace.engine.wire.job import fits_beside, make_job
from vivace.server.backends.native.loaded_model import LoadedModel, OnLoading, find_model
from vivace.server.watch.metrics import Metrics


class ModelPool:
    def __init__(self, settings: Settings, metrics: Metrics, on_loading: OnLoading) -> None:
        self._settings = settings
        self._metrics = metrics
        self._on_loading = on_loading
        self._loaded: OrderedDict[str, LoadedModel] = OrderedDict()  # least recently used first
        self._holders: Counter[str] = Counter()
        self._turnstile = asyncio.Lock()  # fair: who comes first is served first
        self._released = asyncio.Event()

    def get(self, name: str) -> LoadedModel | None:
        return self._loaded.get(name)

    @property
    def latest(self) -> LoadedModel | None:
        """Return the model that was used last."""
        return next(reversed(self._loaded.values()), None)

    @property
    def names(self) -> list[str]:
        """Return the names of all loaded models, the one used last first."""
        return list(reversed(self._loaded))

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[LoadedModel]:
        """Give the loaded model of that name; it stays loaded inside the block."""
        async with self._turnstile:
            loaded = self._loaded.get(name) or await self._load(name)
            self._loaded.move_to_end(name)
            self._holders[name] += 1
        try:
            yield loaded
        finally:
            self._holders[name] -= 1
            self._released.set()

    async def renew(self) -> bool:
        """Reload models that tuning has changed. Return whether there was one."""
        async with self._turnstile:
            outdated = [model for model in self._loaded.values() if model.is_outdated(self._settings)]
            for model in outdated:
                while self._holders[model.name]:
                    await self._next_release()
                await self._close(model)
                await self._load(model.name)
            return bool(outdated)

    async def close(self) -> None:
        """Close all models at the same time; their engines park what is idle."""
        await asyncio.gather(*(model.close() for model in self._loaded.values()))

    async def _load(self, name: str) -> LoadedModel:
        find_model(self._settings, name)  # before another one is closed for it
        await self._make_room(name)
        loaded = LoadedModel(self._settings, name, self._metrics, self._on_loading)
        try:
            await loaded.load()
        except BaseException:
            await loaded.engines.close()
            raise
        self._loaded[name] = loaded
        return loaded

    async def _make_room(self, name: str) -> None:
        """Close idle models, the least recently used first, until there is room; wait where none is idle."""
        job = make_job(self._settings, name, find_model(self._settings, name))
        while self._loaded and not self._has_room(job.path):
            idle = [model for model in self._loaded.values() if not self._holders[model.name]]
            if idle:
                await self._close(idle[0])
            else:
                await self._next_release()

    def _has_room(self, path: str) -> bool:
        """Return whether one more model may be loaded. One on a GPU takes the GPU's memory for itself."""
        models = self._loaded.values()
        if len(models) >= self._settings.max_models or any(model.is_on_gpu for model in models):
            return False
        paths = [model.engines.job.path for model in models for _ in model.engines]
        limit_bytes = int(self._settings.models_gib * 2**30)
        return fits_beside(path, paths, self._settings.context_tokens, limit_bytes)

    async def _close(self, model: LoadedModel) -> None:
        del self._loaded[model.name]
        await model.close()

    async def _next_release(self) -> None:
        self._released.clear()
        await self._released.wait()
