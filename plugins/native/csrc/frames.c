/* The interpreter makes an object of a frame for a caller of its public functions, which takes longer than all else
   that the flight recorder does. So its own frames are looked at in those versions that have been tried, if the headers
   that describe them are there. */
#if !defined(RANKWISE_PUBLIC_FRAMES) && __has_include(<internal/pycore_frame.h>)
#define Py_BUILD_CORE 1 /* before anything else of Python's */
#endif
#include "frames.h"

#if defined(Py_BUILD_CORE) && PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <internal/pycore_frame.h>
#pragma GCC diagnostic pop

typedef struct _PyInterpreterFrame Frame;

static Frame *frames_innermost(void)
{
#if PY_VERSION_HEX < 0x030D0000
    return PyThreadState_Get()->cframe->current_frame;
#else
    return PyThreadState_Get()->current_frame;
#endif
}

static PyCodeObject *frames_code_of(Frame *frame)
{
#if PY_VERSION_HEX < 0x030D0000
    return frame->f_code;
#else
    return (PyCodeObject *)frame->f_executable;
#endif
}

/* The frame itself or the next one out of it that runs code of Python's; NULL if there is none. */
static Frame *frames_running(Frame *frame)
{
    while (frame != NULL && _PyFrame_IsIncomplete(frame))
        frame = frame->previous;
    return frame;
}

PyObject *frames_find(int skipped, Passed passed, void *what, int *instruction)
{
    Frame *frame = frames_running(frames_innermost()), *back;
    if (frame == NULL)
        return NULL;
    while ((skipped-- > 0 || passed(what, frames_code_of(frame))) && (back = frames_running(frame->previous)) != NULL)
        frame = back;
    *instruction = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
    PyObject *code = (PyObject *)frames_code_of(frame);
    Py_INCREF(code);
    return code;
}

#else

static int frames_instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    return frame->f_lasti * (int)sizeof(_Py_CODEUNIT);
#endif
}

PyObject *frames_find(int skipped, Passed passed, void *what, int *instruction)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get()), *back;
    while (frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        back = skipped-- > 0 || passed(what, code) ? PyFrame_GetBack(frame) : NULL;
        if (back == NULL)
            *instruction = frames_instruction_of(frame);
        Py_DECREF(frame);
        if (back == NULL)
            return (PyObject *)code;
        Py_DECREF(code);
        frame = back;
    }
    return NULL;
}

#endif
