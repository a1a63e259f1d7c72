# The Pin tool by the kit's own rules: make -f pin.mk PIN_ROOT=... OBJDIR=build/pin/
CONFIG_ROOT := $(PIN_ROOT)/source/tools/Config
include $(CONFIG_ROOT)/makefile.config

TOOL_ROOTS := pin_tool
WRITER := writer session_file watcher control tracer own_maps

include $(TOOLS_ROOT)/Config/makefile.default.rules

TOOL_CXXFLAGS += -std=c++17 -O2
ELEMENTS := $(shell grep -ls IARG_MULTI_ELEMENT_OPERAND $(PIN_ROOT)/source/include/pin/gen/types_vmapi.*)
TOOL_CXXFLAGS += $(if $(ELEMENTS),-DPTT_PIN_ELEMENTS)
WRITER_OBJECTS := $(WRITER:%=$(OBJDIR)%$(OBJ_SUFFIX))

$(WRITER_OBJECTS): $(OBJDIR)%$(OBJ_SUFFIX): %.cpp | $(OBJDIR)
	$(CXX) $(TOOL_CXXFLAGS) -ffreestanding $(COMP_OBJ)$@ $<

$(OBJDIR)pin_tool$(PINTOOL_SUFFIX): $(OBJDIR)pin_tool$(OBJ_SUFFIX) $(WRITER_OBJECTS)
	$(LINKER) $(TOOL_LDFLAGS) $(LINK_EXE)$@ $^ $(TOOL_LPATHS) $(TOOL_LIBS)

.DEFAULT_GOAL := $(OBJDIR)pin_tool$(PINTOOL_SUFFIX)
