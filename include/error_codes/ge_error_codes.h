#ifndef INC_EXTERNAL_GRAPH_GE_ERROR_CODES_H_
#define INC_EXTERNAL_GRAPH_GE_ERROR_CODES_H_

// Codes of the model compiler, which is not part of Hufu: clients include this header by way of
// acl_base.h and need it to exist (contract §3.2).

#endif  // INC_EXTERNAL_GRAPH_GE_ERROR_CODES_H_
