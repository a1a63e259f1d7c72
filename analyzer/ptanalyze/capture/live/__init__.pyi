"""What captures look at on the running machine: processes, tables, nodes."""

from .locate import native as native
from .process import FEW_CALLS as FEW_CALLS
from .process import RECORDS as RECORDS
from .process import Process as Process
from .process import called as called
from .process import check_process as check_process
from .process import command_line as command_line
from .process import cpu_ticks as cpu_ticks
from .process import ends_once as ends_once
from .process import hold as hold
from .process import huge_pages as huge_pages
from .process import keeps_page_size as keeps_page_size
from .process import named as named
from .process import not_running as not_running
from .process import open_process as open_process
from .process import page_trial as page_trial
from .process import shown as shown
from .process import stat_fields as stat_fields
from .process import still_runs as still_runs
from .process import used as used
from .record import GROWTH as GROWTH
from .record import rehearse as rehearse
from .supervise import GRACE as GRACE
from .supervise import as_typed as as_typed
from .supervise import die_with_us as die_with_us
from .tracers import qemu as qemu
