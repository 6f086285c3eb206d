# One file a line. The driver is one shared library linked from objects (no archive): a definition here
# replaces the weak NOT_SUPPORTED fallback of the same name.
set(CUDASIM_DRIVER_SOURCES
    driver/access.cpp
    driver/address_space.cpp
    driver/call.cpp
    driver/context.cpp
    driver/device.cpp
    driver/device_attributes.cpp
    driver/error_names.cpp
    driver/host_memory.cpp
    driver/ipc.cpp
    driver/linear.cpp
    driver/pointer.cpp
    driver/process.cpp
    driver/vmm.cpp
    driver/vmm_share.cpp
    # SIM-2
    driver/entry_points.cpp
    driver/names.cpp
    driver/unimplemented.cpp
    driver/unimplemented_log.cpp
    driver/copy.cpp)
