# The Debian package: everything that is installed, below /usr, in one package. `./dev package` makes it. CPack adds the
# calls of ldconfig; no service is set up, and no file outside /usr is written.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME apportion)
set(CPACK_PACKAGE_CONTACT "the maintainers of Apportion <maintainers@apportion.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "shares the memory of one GPU between processes")
set(CPACK_PACKAGE_DESCRIPTION "A broker takes the memory of one NVIDIA GPU once and leases it to jobs, under a guarantee and
a limit from a config file. Daemon, command line, client library with its headers, and a simulated driver
for machines without a GPU. The driver itself is loaded at run time and comes from NVIDIA.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
# What we need is asked of dpkg-shlibdeps. What we offer is said here: asked of the files, it would include the
# simulator, and who links the real libcuda.so.1 would be told to install us.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/deb/shlibs
     "libapportion ${PROJECT_VERSION_MAJOR} apportion (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/deb/shlibs)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libcuda1, libnvidia-ml1")
# `cpack` and `cmake --install` take what was built (the target `installed`), instead of building the tests first.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON PARENT_SCOPE)
include(CPack)
