"""The running host: survey of its processes, samples of the pages they use, relocation of their
tables; huge pages for which mapping."""

COMMANDS = {
    "Capture": {
        "doctor": ("ptanalyze_host.doctor_command", "Check what this host supports."),
    },
    "Inspect": {
        "survey": ("ptanalyze_host.survey_command", "List processes by remote page tables."),
        "relocate": ("ptanalyze_host.relocate_command", "Move leaf tables to a process's threads."),
    },
    "Ask": {
        "hugepages": ("ptanalyze_host.hugepages_command", "Rank mappings by gain from huge pages."),
    },
    "Model": {
        "topology": ("ptanalyze_host.topology_command", "Group CPUs by the latency between them."),
        "trial": ("ptanalyze_host.trial_command", "Measure a program with tables far and near."),
    },
}
