"""What captures look at on the running machine: processes, tables, nodes."""

from .dump import alive as alive
from .dump import descendants as descendants
from .dump import dump_process as dump_process
from .dump import move_files as move_files
from .dump import seal_dump as seal_dump
from .native import native as native
from .node_latency import cpu_list as cpu_list
from .node_latency import cpu_model as cpu_model
from .node_latency import measure_nodes as measure_nodes
from .process import PAGE as PAGE
from .process import Process as Process
from .process import called as called
from .process import check_process as check_process
from .process import command_line as command_line
from .process import open_process as open_process
from .process import read_topology as read_topology
from .supervise import GRACE as GRACE
from .supervise import die_with_us as die_with_us
