# The installed package: libraries, headers, GradusConfig.cmake and gradus.pc.
include(CMakePackageConfigHelpers)

set(layers core kernels autograd nn parallel)
set(targets gradus)
set(archives "")
foreach(layer IN LISTS layers)
    list(APPEND targets gradus_${layer})
    get_target_property(type gradus_${layer} TYPE)
    if(type STREQUAL STATIC_LIBRARY)
        string(PREPEND archives "-lgradus_${layer} ")
    endif()
endforeach()

install(TARGETS ${targets} EXPORT GradusTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${layers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus
    FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(FILES gradus.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Gradus)
install(EXPORT GradusTargets NAMESPACE Gradus:: DESTINATION ${package_dir})
configure_package_config_file(cmake/GradusConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/GradusConfig.cmake
    INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/GradusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/GradusConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/GradusConfigVersion.cmake
    DESTINATION ${package_dir})

set(pc_libs "${archives}-pthread")
if(oneDNN_FOUND)
    string(APPEND pc_libs " -ldnnl")
    if(GRADUS_LIBGOMP)
        string(APPEND pc_libs " -l:libgomp.so.1")
    endif()
endif()
# Relative to the file itself: `cmake --install --prefix` may put it anywhere.
file(RELATIVE_PATH pc_prefix /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
configure_file(cmake/gradus.pc.in ${CMAKE_CURRENT_BINARY_DIR}/gradus.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gradus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
