#!/usr/bin/env python3
"""One attached session over libapportion's C API, for tests in Python; a process each, as CUDA does not survive fork.

    client.py ACTION...     attaches to $APPORTION_JOB and runs the actions in order; prints the last error's line

Actions: allocate:BYTES, exact:BYTES, free:INDEX, trim, detach, fork (the rest runs in a forked child), ready (prints
"ready", and waits for a line on standard input), attach (one more session).
"""
import ctypes
import os
import pathlib
import sys


class AttachOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("job", ctypes.c_char_p), ("socket", ctypes.c_char_p),
                ("label", ctypes.c_char_p), ("flags", ctypes.c_uint32)]


def load():
    library = ctypes.CDLL(str(pathlib.Path(os.environ["APPORTION_BUILD_DIR"]) / "libclient/libapportion.so"))
    library.apportion_last_error.restype = ctypes.c_char_p
    library.apportion_allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint32,
                                           ctypes.POINTER(ctypes.c_void_p)]
    library.apportion_deallocate.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.apportion_trim_to.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]
    library.apportion_detach.argtypes = [ctypes.c_void_p]
    return library


def main():
    library, session, blocks, status = load(), ctypes.c_void_p(), [], 0

    def attach():
        options = AttachOptions(ctypes.sizeof(AttachOptions), None, None, None, 0)
        return library.apportion_attach(ctypes.byref(options), ctypes.byref(session))

    status = attach()
    for action in sys.argv[1:]:
        if status != 0:
            break
        verb, _, argument = action.partition(":")
        if verb in ("allocate", "exact"):
            block = ctypes.c_void_p()
            status = library.apportion_allocate(session, int(argument), None, int(verb == "exact"), ctypes.byref(block))
            blocks.append(block)
        elif verb == "free":
            status = library.apportion_deallocate(session, blocks[int(argument)], None)
        elif verb == "trim":
            status = library.apportion_trim_to(session, 0, None)
        elif verb == "detach":
            status = library.apportion_detach(session)
        elif verb == "attach":
            status = attach()
        elif verb == "fork" and (child := os.fork()):
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        elif verb == "ready":
            print("ready", flush=True)
            sys.stdin.readline()
    if status != 0:
        print(library.apportion_last_error().decode(), file=sys.stderr, flush=True)
    os._exit(status)  # a forked child must not run what its parent registered


if __name__ == "__main__":
    main()
