/* CUDA's errors by number: the driver's and the runtime's are the same for those that the card gives. */
#pragma once

const char *card_error_name(int error, int of_driver);
const char *card_error_text(int error);
