"""Networks as plans: a builder, and executors that run the same plan."""

from stapes.graph.builder import GraphBuilder
from stapes.graph.executor import Array, Executor, KvCacheLike
from stapes.graph.native import Engine, NativeExecutor
from stapes.graph.plan import Op, Plan, View
from stapes.graph.reference import ReferenceExecutor
from stapes.graph.trace import NO_TRACE, NoTracer, Tracer

__all__ = [
    "NO_TRACE",
    "Array",
    "Engine",
    "Executor",
    "GraphBuilder",
    "KvCacheLike",
    "NativeExecutor",
    "NoTracer",
    "Op",
    "Plan",
    "ReferenceExecutor",
    "Tracer",
    "View",
]
