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
    driver/memory.cpp
    driver/pointer.cpp
    driver/process.cpp
    driver/vmm.cpp
    driver/vmm_share.cpp
    # SIM-2
    driver/capture.cpp
    driver/copy.cpp
    driver/entry_points.cpp
    driver/events.cpp
    driver/fill.cpp
    driver/graph.cpp
    driver/launch.cpp
    driver/module.cpp
    driver/names.cpp
    driver/pool.cpp
    driver/pool_calls.cpp
    driver/progress.cpp
    driver/stream_calls.cpp
    driver/stream_hooks.cpp
    driver/streams.cpp
    driver/submit.cpp
    driver/transfer.cpp
    driver/unimplemented.cpp
    driver/unimplemented_log.cpp)
