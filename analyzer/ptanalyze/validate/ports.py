"""Public measurements of Mitosis and Hydra ported to Linux 7.0: nothing here is fitted to them."""

from . import ports_epyc as epyc
from . import ports_orders as orders
from . import ports_xeon as xeon

FIGURES = {
    "pr": epyc.page_rank,
    "bc": epyc.betweenness,
    "cc": epyc.components,
    "orders": orders.orders,
    "Xeon": xeon.policies,
}
