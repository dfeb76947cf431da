# The targets jittison::jittison (shared) and jittison::jittison_static.
#
# This file is in PREFIX/lib/cmake/jittison (`install`) or PREFIX/share/jittison/cmake (`cargo cinstall`).
get_filename_component(_jittison_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
foreach(_jittison_directory lib lib64 lib/x86_64-linux-gnu)
  if(EXISTS "${_jittison_prefix}/${_jittison_directory}/libjittison.so")
    set(_jittison_libraries "${_jittison_prefix}/${_jittison_directory}")
    break()
  endif()
endforeach()

if(NOT DEFINED _jittison_libraries)
  set(jittison_FOUND FALSE)
  set(jittison_NOT_FOUND_MESSAGE "there is no libjittison.so under ${_jittison_prefix}")
elseif(NOT TARGET jittison::jittison)
  add_library(jittison::jittison SHARED IMPORTED)
  set_target_properties(jittison::jittison PROPERTIES
    IMPORTED_LOCATION "${_jittison_libraries}/libjittison.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_jittison_prefix}/include")
  add_library(jittison::jittison_static STATIC IMPORTED)
  set_target_properties(jittison::jittison_static PROPERTIES
    IMPORTED_LOCATION "${_jittison_libraries}/libjittison.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_jittison_prefix}/include"
    INTERFACE_LINK_LIBRARIES "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc")
endif()
